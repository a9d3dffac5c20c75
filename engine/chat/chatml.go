package chat

import (
	"slices"
	"strings"
)

// chatMLPrompt is how all plain ChatML templates end.
const chatMLPrompt = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// chatMLForms are the plain ChatML templates in circulation. Some are written with an escaped line end inside the
// string literal, some with a real one: isChatML makes them the same.
var chatMLForms = []string{
	ChatML,
	"{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" + chatMLPrompt,
	"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\n" + chatMLPrompt,
	"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
}

// isChatML says whether source is one of the plain ChatML templates.
func isChatML(source string) bool {
	source = strings.ReplaceAll(source, `\n`, "\n")
	return slices.Contains(chatMLForms, source)
}

func renderChatML(b *strings.Builder, messages []Message, o Options) {
	for i := range messages {
		b.WriteString("<|im_start|>")
		b.WriteString(o.Guard(messages[i].Role))
		b.WriteByte('\n')
		b.WriteString(o.Guard(messages[i].Content))
		b.WriteString("<|im_end|>\n")
	}
	if o.AddGenerationPrompt {
		b.WriteString("<|im_start|>assistant\n")
	}
}
