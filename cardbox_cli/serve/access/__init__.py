"""Who may ask: by a token, by a cookie that a token was exchanged for, or from this machine."""
