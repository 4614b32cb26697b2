"""The HTTP service for studies, with a dashboard in the browser. It needs the extra `server`."""
