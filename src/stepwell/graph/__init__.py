"""Graph workflows: JSON files of nodes and edges that run like Python workflows."""
