"""Studies behind an address: an HTTP service with a dashboard. It needs the extra `server`."""
