"""Transfer logs: what a site's servers wrote down of years of transfers, as sessions, circuits and variance.

`importing` turns lines into Parquet (`gridftp`, `table_lines` and `json_lines` read them, `checking` judges
them, `store` keeps them); `engine` opens what was imported, and each analysis is a module of its own.
"""
