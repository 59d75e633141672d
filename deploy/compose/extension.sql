-- Only a superuser may; Prism itself does not need to be one.
create extension if not exists vector;
