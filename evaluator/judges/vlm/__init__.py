"""The judge `vlm`: a vision-language model behind an endpoint, asked as in DistRL, appendix A.2."""
