package infertest

import "strings"

type family struct {
	front, back   []string // special tokens before, in SPM, and after all others
	bos, eos, eot string
	prefix        bool // a space is prepended to the text
	template      string
}

// Template is the chat template of generated models without one of their family's: ChatML.
const Template = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

const templateGemma = "{{ bos_token }}{% for message in messages %}" +
	"{% if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" +
	"{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"

const templatePhi3 = "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"

const templateHarmony = "{% for message in messages %}{{ '<|start|>' + message['role'] + ('<|channel|>final' if message['role'] == 'assistant' else '') + " +
	"'<|message|>' + message['content'] + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"

func (s Spec) family() family {
	switch {
	case strings.HasPrefix(s.Arch, "gemma"):
		back := []string{"<start_of_turn>", "<end_of_turn>"}
		if s.Images {
			back = append(back, "<start_of_image>", "<end_of_image>")
		}
		return family{
			front: []string{"<pad>", "<eos>", "<bos>", "<unk>"}, back: back,
			bos: "<bos>", eos: "<eos>", eot: "<end_of_turn>", template: templateGemma,
		}
	case s.Arch == "phi3":
		return family{
			front: []string{"<unk>", "<s>", "</s>"}, back: []string{"<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"},
			bos: "<s>", eos: "<|endoftext|>", eot: "<|end|>", prefix: true, template: templatePhi3,
		}
	case s.Arch == "gpt-oss":
		return family{
			back: []string{"<|endoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"},
			bos:  "<|endoftext|>", eos: "<|return|>", template: templateHarmony,
		}
	case !s.SPM:
		return family{back: []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, bos: "<|endoftext|>", eos: "<|im_end|>", template: Template}
	default:
		return family{
			front: []string{"<unk>", "<s>", "</s>"}, back: []string{"<|im_start|>", "<|im_end|>"},
			bos: "<s>", eos: "<|im_end|>", prefix: true, template: Template,
		}
	}
}
