"""The decoder's blocks as diffusers computes them, with a call for each operation of layers.py."""

from __future__ import annotations

import layers


def resnet_block(self, input_tensor, temb=None, *args, **kwargs):
    """Without the embedding of a time step and without sampling: a decoder's blocks have neither."""
    x = self.conv1(layers.normed_silu(input_tensor, self.norm1, self.nonlinearity))
    x = layers.normed_silu(x, self.norm2, self.nonlinearity)
    skip = input_tensor if self.conv_shortcut is None else self.conv_shortcut(input_tensor)
    return layers.residual_end(self.conv2, x, skip, self.output_scale_factor)


def decoder(self, sample, latent_embeds=None):
    x = self.mid_block(self.conv_in(sample), latent_embeds)
    for block in self.up_blocks:
        x = block(x, latent_embeds)
    return self.conv_out(layers.normed_silu(x, self.conv_norm_out, self.conv_act))
