"""The HTTP service for studies, with a dashboard. It needs the extra `server`."""
