"""Commands about who may do what and how much: access rules, passwords, quotas."""
