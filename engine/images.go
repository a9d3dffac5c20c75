package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"github.com/rouse-dev/rouse/engine/sched"
)

// maxImages is of all unfinished sequences: a worker gets those of a step in one frame.
const maxImages = 64

// thisProcess is in the names of blocks with images: another process's projector may differ.
var thisProcess = rand.Text()

// checkImages sets lengths and digest.
func (e *Engine) checkImages(r *accepted) error {
	if len(r.Images) == 0 {
		return nil
	}
	m := &e.model.Image
	switch {
	case m.Size == 0:
		return invalid("messages", "the model reads no images")
	case r.N*len(r.Images) > maxImages:
		return invalid("messages", "%d images in each of %d texts: want at most %d", len(r.Images), r.N, maxImages)
	case r.ScorePrompt:
		return invalid("prompt_logprobs", "log probabilities of a prompt with images are not supported: leave one of the two out")
	case r.Embed != "":
		return invalid("input", "vectors of images are not supported")
	}
	h, end := sha256.New(), 0
	h.Write([]byte(thisProcess))
	for i := range r.Images {
		x := &r.Images[i]
		x.N = m.Tokens()
		if x.At < end || x.At+x.N >= len(r.Prompt) || len(x.Pixels) != 3*m.Size*m.Size {
			return invalid("messages", "image %d of %d bytes has no place at token %d of %d", i, len(x.Pixels), x.At, len(r.Prompt))
		}
		end = x.At + x.N
		h.Write(binary.AppendUvarint(nil, uint64(x.At)))
		h.Write(x.Pixels)
	}
	r.pictured = string(h.Sum(nil))
	return nil
}

// Each of spans is computed in one step.
func (r *accepted) spans() (all []sched.Span) {
	for _, x := range r.Images {
		all = append(all, sched.Span{From: x.At, To: x.At + x.N})
	}
	return all
}
