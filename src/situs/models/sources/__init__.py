"""Where a configuration comes from, as plain data: files, folders, text and config objects, read within bounds."""
