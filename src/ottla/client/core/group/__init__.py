"""What a member of a group decides, in the classic protocol and in that of KIP-848."""
