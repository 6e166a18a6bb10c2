insert into {schema}.migration (version) values (7);
