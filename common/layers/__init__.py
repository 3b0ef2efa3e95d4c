"""What several papers take from others: block attentions, packed weights, augmentation."""
