"""Pictures of what a study has learned."""
