"""What `pipedec serve` shows: OpenAI's API, metrics, a page."""
