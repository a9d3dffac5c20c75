package runtime

import (
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// reserved are options that the adapter sets, or that change where or what the server serves, with advice.
type reserved map[string]string

const (
	noAddress = "the function chooses where its runtime listens; remove it"
	useModel  = "set the function's model reference instead"
	useNames  = "set the function's model name and aliases instead"
	noKey     = "only the function reaches its runtime, so it needs no key, and a command line is no place for one; remove it"
	noTLS     = "the function speaks HTTP/1.1 to its runtime over a socket or 127.0.0.1, without TLS; remove it"
	noTools   = "clients could run its tools, which run programs; remove it"
	noFiles   = "clients could read files of the machine; remove it, and have them send media in the request, as data: URLs"
	mediaHost = "name the hosts with the annotation rouse.dev/media-hosts (--media-hosts of the function) instead"
	noSwitch  = "the function turns it on where it is wanted; remove it"
	oneModel  = "a function is one model; remove it"
	adapters  = "declare the adapters with the function instead"
)

// because takes pairs: an advice, and its names, separated by spaces.
func because(pairs ...string) reserved {
	r := reserved{}
	for i := 0; i+1 < len(pairs); i += 2 {
		for name := range strings.FieldsSeq(pairs[i+1]) {
			r[name] = pairs[i]
		}
	}
	return r
}

// nowhere can't exist (RFC 6761): as the only allowed host it lets a server fetch nothing.
const nowhere = "media.invalid"

func mediaDomains(hosts []string) []string {
	args := []string{"--allowed-media-domains"}
	for _, h := range hosts {
		name, err := url.Parse("http://" + h)
		if err != nil {
			continue
		}
		args = append(args, name.Hostname())
	}
	if len(args) == 1 {
		args = append(args, nowhere)
	}
	return args
}

func (r reserved) without(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return r[name] != ""
	})
}

func (r reserved) refuse(spec api.Runtime) error {
	for _, arg := range spec.Args {
		if instead, found := r[option(arg)]; found {
			return fmt.Errorf("option %s: %s", option(arg), instead)
		}
	}
	for _, kv := range spec.Env {
		name, _, _ := strings.Cut(kv, "=")
		if instead, found := r[name]; found {
			return fmt.Errorf("environment variable %s: %s", name, instead)
		}
	}
	return nil
}

// option returns an option's documented name, else "": "--max_len=5" is --max-len.
func option(arg string) string {
	if !strings.HasPrefix(arg, "-") {
		return ""
	}
	name, _, _ := strings.Cut(arg, "=")
	if strings.HasPrefix(name, "--") {
		name = strings.ReplaceAll(name, "_", "-")
	}
	return name
}

func has(args []string, options ...string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(options, option(arg)) })
}

// ValuesOf yields index and value of each of the named options.
func ValuesOf(args []string, names ...string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i, arg := range args {
			if !slices.Contains(names, option(arg)) {
				continue
			}
			_, value, given := strings.Cut(arg, "=")
			if !given && i+1 < len(args) {
				value = args[i+1]
			}
			if !yield(i, value) {
				return
			}
		}
	}
}

// numberOf returns an option's last number, or otherwise.
func numberOf(args []string, name string, otherwise int) int {
	for _, value := range ValuesOf(args, name) {
		if n, err := strconv.Atoi(value); err == nil {
			otherwise = n
		}
	}
	return otherwise
}
