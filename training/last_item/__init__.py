"""Next-item training and judging on plain sequences: each user's last item is the answer, all items are ranked."""
