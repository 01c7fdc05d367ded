"""Proposers: what offers a change. They read a brief and return a proposal; they never import the judge, nor the judge them."""
