"""What an evaluation of a released model found: figures of its records, tables, and the report for the browser."""
