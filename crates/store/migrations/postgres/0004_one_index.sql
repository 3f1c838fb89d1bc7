-- On SQLite this step removes what the one before it has taken the place of; here there is nothing to remove.
select 1;
