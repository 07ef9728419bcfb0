"""What a comparison found: figures of its records, a table, and the report for the browser."""
