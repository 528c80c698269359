"""Run folders and models enter, pages to look at leave: one self-contained HTML file each."""
