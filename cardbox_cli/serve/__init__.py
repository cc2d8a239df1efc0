"""Cards, boxes and turns over HTTP, to be read: an API for programs, pages for people. Nothing writes."""
