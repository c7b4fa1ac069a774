"""A cluster under load and churn for hours: does it grow, and does it log unexpected lines?"""
