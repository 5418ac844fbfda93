"""What every bench does the same: the connection that it measures over, and the page that it writes."""
