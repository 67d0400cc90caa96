"""What a careful person checks before a long run: each check in a file of its own, each with a verdict."""
