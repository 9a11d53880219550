"""`pipedec serve`: the command, the service that decodes, OpenAI's API with metrics, and a page."""
