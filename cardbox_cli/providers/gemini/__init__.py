"""Google's Gemini (`generateContent`): contents of parts, system text apart, the model in the URL."""
