"""The pocket suite: small tasks in a small English, made by rule; the one door to it."""
