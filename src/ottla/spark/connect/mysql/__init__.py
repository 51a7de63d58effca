"""MySQL and MariaDB, by PyMySQL: as a sink's database and as a source's."""
