"""Files by reference: content-addressed blobs, and what a run attaches or writes."""
