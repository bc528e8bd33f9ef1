"""Pictures of real sizes in hub policies: equal to what transformers' own processors and models do."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from policy_fakes import check_agreement, png
from tiny_qwen import PICTURE
from transformers import AutoImageProcessor, AutoTokenizer
from transformers.image_utils import SizeDict
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.glm46v.processing_glm46v import Glm46VProcessor
from transformers.models.llava.processing_llava import LlavaProcessor
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

from distrl.core.errors import PolicyError
from distrl.core.policies.base import Pictures, Policy
from distrl.core.policies.hub_images import ImageReader, attend_in_one_call
from distrl.core.types import ChatMessage, ImagePart, TextPart

MakePolicy = Callable[..., Policy]
# Three prompts: two pictures, one, none.
SHOWN = [[(54, 120), (33, 31)], [(130, 61)], []]
TEXTS = ["before and after", "now", "no picture at all"]
IMAGE = 3


def messages(text: str, num_images: int) -> tuple[ChatMessage, ...]:
    """A chat that shows its pictures one after the other, words between them."""
    parts = [part for _ in range(num_images) for part in (TextPart(text="see "), ImagePart(digest="0" * 32))]
    return (ChatMessage(role="user", parts=(*parts, TextPart(text=text))),)


def processor(directory: Path, family: str):
    """transformers' own processor, which wants a video processor, and so torchvision, for Qwen-VL."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.image_token, tokenizer.image_token_id = "<|image_pad|>", IMAGE
    tokenizer.video_token, tokenizer.video_token_id = "<|video_pad|>", 6
    images = AutoImageProcessor.from_pretrained(directory, backend="pil")
    if family == "llava":
        return LlavaProcessor(
            images, tokenizer, patch_size=14, vision_feature_select_strategy="default",
            image_token="<|image_pad|>", num_additional_image_tokens=1,
        )  # fmt: skip
    base = {"qwen": Qwen2_5_VLProcessor, "qwen3": Qwen3VLProcessor, "glm": Glm46VProcessor}[family]

    class WithoutVideos(base):
        def check_argument_for_proper_class(self, argument_name, argument):
            return type(argument)

    return WithoutVideos(images, tokenizer, None, chat_template=tokenizer.chat_template)


def prompts_of(policy: Policy):
    images = [
        [policy.image(png(10 * row + i, size)) for i, size in enumerate(sizes)]
        for row, sizes in enumerate(SHOWN)
    ]
    ids = [policy.prompt_ids(messages(text, len(row)), row) for text, row in zip(TEXTS, images, strict=True)]
    return ids, images


def test_mixed_prompts_are_what_transformers_makes_of_each_alone(
    make_hub: MakePolicy, model_dir: Path, family: str
) -> None:
    """Token ids, pixels, positions: the last layer's states show them all."""
    policy = make_hub()
    ids, images = prompts_of(policy)
    states = policy.states(policy.collate(ids, images))
    whole = processor(model_dir, family)
    model = policy.get_submodule("model")
    for row, (text, sizes) in enumerate(zip(TEXTS, SHOWN, strict=True)):
        shown = "see <|image_pad|>" if family == "llava" else f"see {PICTURE}"
        inputs = whole(
            images=[Image.open(io.BytesIO(png(10 * row + i, s))) for i, s in enumerate(sizes)] or None,
            text=[f"<|im_start|>user: {shown * len(sizes)}{text}<|im_end|><|im_start|>assistant: "],
            return_tensors="pt",
        )
        assert inputs["input_ids"][0].tolist() == ids[row]
        with torch.no_grad():
            alone = model(**inputs, output_hidden_states=True).hidden_states[-1][0]  # type: ignore[operator]
        found = states.hidden[row][states.mask[row].bool()]
        torch.testing.assert_close(found, alone, atol=1e-5, rtol=0)


def test_sampled_and_scored_agree_for_mixed_pictures(make_hub: MakePolicy) -> None:
    policy = make_hub()
    ids, images = prompts_of(policy)
    batch = policy.collate(ids, images)
    check_agreement(policy, batch, (1.0, 0.7, 1.3), (9, 9, 9))
    tokens = torch.tensor([policy.completion_ids("tap here")] * 3)
    mask = torch.ones_like(tokens).bool()
    scores = policy.score(batch, tokens, mask, torch.ones(3))
    for row in range(3):  # batches and their parts say the same
        only = torch.tensor([row])
        part = batch[only]
        assert part.input_ids.shape[1] == len(ids[row])
        alone = policy.score(part, tokens[only], mask[only], torch.ones(1))
        torch.testing.assert_close(alone.logprobs[0], scores.logprobs[row], atol=1e-5, rtol=0)


def test_placeholders_must_be_those_of_the_pictures(make_hub: MakePolicy, family: str) -> None:
    policy = make_hub()
    ids, images = prompts_of(policy)
    with pytest.raises(PolicyError, match="leaves room for 2 pictures, but the chat shows 1"):
        policy.prompt_ids(messages("x", 2), images[0][:1])
    asked = ids[0].count(IMAGE)
    with pytest.raises(PolicyError, match=rf"has {asked} picture placeholders .* need \d+"):
        policy.collate([ids[0]], [images[0][:1]])
    place = ids[0].index(IMAGE)
    short = ids[0][:place] + ids[0][place + 1 :]
    with pytest.raises(PolicyError, match=f"has {asked - 1} picture placeholders .* need {asked}"):
        policy.collate([short], [images[0]])
    policy.verify(ids[0], images[0])
    with pytest.raises(PolicyError, match=f"has {asked - 1} picture placeholders"):
        policy.verify(short, images[0])
    if family != "llava":  # as many in all, but not one after the other
        with pytest.raises(PolicyError, match="picture placeholders"):
            policy.collate([ids[0]], [images[0][::-1]])


def test_a_prompt_can_take_other_pictures(make_hub: MakePolicy) -> None:
    policy = make_hub()
    ids, images = prompts_of(policy)
    other = policy.image(png(5, (40, 80)))
    changed = policy.with_images(ids[0], images[0], [images[0][0], other])
    assert changed == policy.prompt_ids(messages(TEXTS[0], 2), [images[0][0], other])
    batch = policy.collate([changed], [[images[0][0], other]])
    assert isinstance(batch.images, Pictures)
    assert len(batch.images.flat) == 2


def test_the_pictures_of_a_batch_stay_in_main_memory_until_a_pass_reads_them(make_hub: MakePolicy) -> None:
    policy = make_hub()
    batch = policy.collate(*prompts_of(policy)).to("meta")
    assert batch.input_ids.is_meta
    assert isinstance(batch.images, Pictures)
    assert [picture.is_meta for picture in batch.images.flat] == [False] * 3
    assert [picture.is_meta for picture in batch.images.on("meta")] == [True] * 3


@pytest.mark.parametrize("family", ["qwen", "qwen3", "glm"], indirect=True)
def test_one_call_attends_within_windows_as_a_call_for_each_does(
    make_hub: MakePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a slow kernel in place of torch's, which needs a GPU."""
    calls = []

    def kernel(query, key, value, bounds, _, longest, __):
        calls.append(longest)
        parts = (x.transpose(0, 1).split(bounds.diff().tolist(), dim=1) for x in (query, key, value))
        found = [torch.nn.functional.scaled_dot_product_attention(*one) for one in zip(*parts, strict=True)]
        return torch.cat(found, dim=1).transpose(0, 1)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    policy, changed = make_hub(), make_hub()
    attend_in_one_call(changed.model)
    images = [policy.image(png(number, size)) for number, size in enumerate([(54, 120), (130, 61)])]
    found = []
    for one in (policy, changed):
        found.append(one.model.get_image_features(**one.images.inputs(images)).pooler_output)
    torch.testing.assert_close(torch.cat(found[1]), torch.cat(found[0]))
    assert len(calls) == 2, "one for each layer"


def test_bounds_of_pixels(make_hub: MakePolicy, family: str) -> None:
    if family == "llava":
        with pytest.raises(PolicyError, match="fixed size"):
            make_hub(max_pixels=10000)
        return
    side = 32 if family == "qwen3" else 28
    policy = make_hub(min_pixels=side * side, max_pixels=12 * side * side)
    picture = policy.image(png(0, (300, 400)))
    assert tuple(picture.shape) == (3, 4 * side, 3 * side)
    assert policy.prompt_ids(messages("x", 1), [picture]).count(IMAGE) == 12
    with pytest.raises(PolicyError, match="longer than 200 times"):
        policy.image(png(0, (1, 300)))
    with pytest.raises(PolicyError, match="min_pixels"):
        make_hub(min_pixels=9000, max_pixels=8000)


def test_a_processor_with_steps_of_its_own_is_refused() -> None:
    class Mirrors(Qwen2VLImageProcessorPil):
        def patchify(self, image, **sizes):
            return super().patchify(image[..., ::-1], **sizes)

    class ResizesOtherwise(Qwen2VLImageProcessorPil):
        def resize(self, image, size, resample, factor, **options):
            half = {"shortest_edge": 4 * factor**2, "longest_edge": 4 * factor**2}
            return super().resize(image, SizeDict(**half), resample, factor, **options)

    class Tiles(CLIPImageProcessorPil):
        model_input_names = ["pixel_values", "image_sizes"]

    for odd in (Mirrors(), ResizesOtherwise()):
        with pytest.raises(PolicyError, match="does more than resizing"):
            ImageReader(odd)
    with pytest.raises(PolicyError, match=r"also gives \['image_sizes'\]"):
        ImageReader(Tiles())
    assert ImageReader(Qwen2VLImageProcessorPil()).factor == 28
