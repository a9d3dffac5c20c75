package serve

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/engine"
)

const (
	maxAdapterName = 256
	maxAdapterPath = 4096
)

// checkAdapterName rejects commas too, which separate the names in vllm:lora_requests_info.
func checkAdapterName(name string) error {
	switch {
	case name == "" || len(name) > maxAdapterName:
		return fmt.Errorf("an adapter's name has %d bytes: want 1 to %d", len(name), maxAdapterName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r == ',' || unicode.IsSpace(r) || unicode.IsControl(r) }):
		return fmt.Errorf("the adapter's name %s has a comma, white space or an invalid character: want a name without them", quote(name))
	}
	return nil
}

type adapterRequest struct {
	Name string `json:"lora_name"`
	Path string `json:"lora_path"`
}

// loadAdapter answers once requests can use the adapter.
func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) error {
	var a adapterRequest
	paid, err := s.read(w, r, &a)
	if err != nil {
		return err
	}
	defer paid.Release()
	if err := checkAdapterName(a.Name); err != nil {
		return badRequest("lora_name", "%v", err)
	}
	switch {
	case a.Path == "":
		return badRequest("lora_path", "lora_path is missing: want a GGUF file, or a folder with adapter_config.json and adapter_model.safetensors")
	case len(a.Path) > maxAdapterPath:
		return badRequest("lora_path", "lora_path has %d bytes: want at most %d", len(a.Path), maxAdapterPath)
	case slices.Contains(s.cfg.Names, a.Name):
		return badRequest("lora_name", "%s is the model's own name: want another", quote(a.Name))
	}
	if err := s.engine.LoadAdapter(r.Context(), a.Name, a.Path); err != nil {
		return adapterError(err)
	}
	s.log.Info("adapter loaded", "name", a.Name, "path", a.Path)
	return writeText(w, "Success: LoRA adapter '"+a.Name+"' added successfully.")
}

// unloadAdapter answers once the adapter's last request has ended.
func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) error {
	var a adapterRequest
	paid, err := s.read(w, r, &a)
	if err != nil {
		return err
	}
	defer paid.Release()
	if a.Name == "" || len(a.Name) > maxAdapterName {
		return badRequest("lora_name", "lora_name has %d bytes: want the name of a loaded adapter", len(a.Name))
	}
	if err := s.engine.UnloadAdapter(r.Context(), a.Name); err != nil {
		return adapterError(err)
	}
	s.log.Info("adapter unloaded", "name", a.Name)
	return writeText(w, "Success: LoRA adapter '"+a.Name+"' removed successfully.")
}

func adapterError(err error) error {
	var request *engine.RequestError
	switch {
	case errors.Is(err, engine.ErrNoAdapter):
		e := errorf(http.StatusNotFound, codeModelNotFound, "%v", err)
		e.Param = "lora_name"
		return e
	case errors.Is(err, engine.ErrAdapterLoaded):
		return badRequest("lora_name", "%v: unload it first, or take another name", err)
	case errors.Is(err, engine.ErrAdaptersFull):
		return badRequest("lora_name", "%v: unload one first, or raise --max-loras", err)
	case errors.Is(err, engine.ErrAsleep), errors.Is(err, engine.ErrStopped), errors.As(err, &request):
		return err
	}
	return badRequest("lora_path", "%v", err)
}

func writeText(w http.ResponseWriter, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // the client may have left
	return nil
}
