"""Amazon Bedrock's Converse: content in blocks, system text apart, the model in the URL."""
