import a_large_package_that_nobody_has  # noqa: F401
