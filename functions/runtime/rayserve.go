package runtime

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// rayServe declares an application with the OpenAI API, an import path (module:app) or a configuration file, to one of three Rays:
//
//  1. RAY_ADDRESS names one.
//  2. One of its own, which ends when it sleeps, if it has GPUs (which Ray counts otherwise than the autoscaler), several applications,
//     settings of a whole Ray, or workers that share its runtime.
//  3. All others of this process share one.
//
// Many applications have only /v1/chat/completions. Metrics are not at their port.
type rayServe struct {
	server
	folder string // of its modules
	apps   rayApplications
}

// Deployer is a [Runtime] whose server is told what to run.
type Deployer interface {
	// Deploy starts the last launch. own starts a process that ends with the instance, apart one that does not.
	Deploy(s process.Spec, own, apart func(process.Spec) (process.Child, error)) (process.Child, error)
}

var rayReserved = because(
	"write it into a configuration file, and set the model's reference to the file's path", "--name --route-prefix --reload -r --working-dir --runtime-env --runtime-env-json",
	"the function goes on while the application runs; remove it", "--blocking --non-blocking",
	"set the environment variable RAY_ADDRESS to its dashboard instead", "--address -a",
)

func newRayServe(cfg Config, c *client) (Runtime, error) {
	r := &rayServe{folder: "."} // Serve's default
	spec := &cfg.Spec
	for _, r.folder = range ValuesOf(spec.Args, "--app-dir", "-d") { // the last one counts
	}
	if len(spec.Args) > 2 || len(spec.Args) > 0 && r.folder == "." {
		return nil, errors.New("its only option is --app-dir: write the others into a configuration file, and set the model's reference to the file's path")
	}
	if spec.Args = nil; len(spec.Command) > 0 && filepath.Base(spec.Command[0]) == "serve" {
		spec.Command = []string{filepath.Join(filepath.Dir(spec.Command[0]), "ray")}
	}
	r.server = newServer(cfg, c, true)
	return r, nil
}

func (r *rayServe) Traits() Traits { return Traits{Reuses: true} }

func (r *rayServe) Launch(model string) (Launch, error) {
	r.fresh()
	if l, attached := r.attached(); attached {
		return l, nil
	}
	l, err := r.prepare(model)
	if err != nil {
		return Launch{}, fmt.Errorf("runtime ray-serve: %w", err)
	}
	return l, nil
}

func (r *rayServe) prepare(model string) (l Launch, err error) {
	list, settings, err := readApplications(model)
	if err != nil {
		return l, unusable(fmt.Errorf("configuration %s: %w", model, err))
	}
	env := slices.Concat(r.cfg.Env, r.cfg.Spec.Env)
	address, simple := process.Variable(env, "RAY_ADDRESS"), len(list) == 1 && len(settings) == 0
	if r.apps.alone {
		r.apps.ray.clean() // of a start that failed
	}
	a := rayApplications{settings: settings, declared: map[string]any{}}
	name, head := r.cfg.Instance, server{cfg: r.cfg}
	switch {
	case address != "" && !simple: // 1.
		return l, unusable(fmt.Errorf("configuration %s: the Ray of RAY_ADDRESS is for others too: leave one application in the file and nothing else, or RAY_ADDRESS out", model))
	case address != "":
		host, _ := os.Hostname() // another machine may have an instance of that name
		name += "." + host
		a.ray, err = rayAt(address, process.Variable(env, "RAY_AUTH_TOKEN"), r.cfg.Transport)
	case !simple || r.cfg.Alone || r.cfg.Devices > 0 || slices.ContainsFunc(r.cfg.Spec.Env, ofRay): // 2.
		a.alone = true
		a.ray, err = newRay(r.cfg.Transport)
	default: // 3.
		head.cfg.Spec.Env = nil
		a.ray, err = sharedRay(strings.Join(r.cfg.Spec.Command, " "), r.cfg.Transport)
	}
	if err != nil {
		return l, err
	}
	l.Endpoint = a.ray.serve
	for _, app := range list {
		if simple {
			app["name"], app["route_prefix"] = name, "/"+name
			l.Endpoint = api.Endpoint(a.ray.serve.URL("/" + name))
		}
		a.declared[fmt.Sprint(app["name"])] = app
		if err := r.setEnvironment(app); err != nil {
			return l, err
		}
	}
	if r.apps = a; address == "" {
		a.ray.listen(settings)
		l, err = head.launch(l.Endpoint, a.ray.options(), a.ray.env())
	}
	return l, err
}

func ofRay(kv string) bool { return strings.HasPrefix(kv, "RAY_") }

// setEnvironment gives an application the function's variables and its modules' folder; its own count more.
func (r *rayServe) setEnvironment(app map[string]any) error {
	folder, err := filepath.Abs(r.folder)
	if err != nil {
		return fmt.Errorf("the application's folder: %w", err)
	}
	all := map[string]any{}
	for _, kv := range r.cfg.Spec.Env {
		if name, value, _ := strings.Cut(kv, "="); !ofRay(kv) {
			all[name] = value
		}
	}
	const modules = "PYTHONPATH"
	if others := process.Variable(slices.Concat(r.cfg.Env, r.cfg.Spec.Env), modules); others != "" {
		folder += string(filepath.ListSeparator) + others
	}
	all[modules] = folder
	env, _ := app["runtime_env"].(map[string]any)
	own, _ := env["env_vars"].(map[string]any)
	maps.Copy(all, own)
	if env == nil {
		env = map[string]any{}
	}
	env["env_vars"], app["runtime_env"] = all, env
	return nil
}

// readApplications also returns the file's other settings.
func readApplications(model string) (list []map[string]any, settings map[string]any, err error) {
	list, settings = []map[string]any{{"import_path": model}}, map[string]any{}
	if ext := filepath.Ext(model); ext != ".yaml" && ext != ".yml" {
		return list, settings, nil
	}
	raw, err := os.ReadFile(model)
	var doc yaml.Node
	if err == nil {
		err = yaml.Unmarshal(raw, &doc)
	}
	var file struct {
		Applications []map[string]any
		Settings     map[string]any `yaml:",inline"`
	}
	if asPython(&doc); err == nil {
		err = doc.Decode(&file)
	}
	if err == nil && len(file.Applications) == 0 {
		err = errors.New("it has no applications")
	}
	for i, app := range file.Applications {
		file.Applications[i] = map[string]any{"name": "default"} // as Serve
		maps.Copy(file.Applications[i], app)
	}
	maps.Copy(settings, file.Settings)
	return file.Applications, settings, err
}

// truths are Python's YAML words for truth values.
var truths = map[string]string{"yes": "true", "on": "true", "no": "false", "off": "false"}

func asPython(n *yaml.Node) {
	if truth, is := truths[strings.ToLower(n.Value)]; is && n.Style == 0 {
		n.Tag, n.Value = "!!bool", truth
	}
	for _, child := range n.Content {
		asPython(child)
	}
}

func (r *rayServe) Deploy(s process.Spec, own, apart func(process.Spec) (process.Child, error)) (process.Child, error) {
	if r.apps.alone {
		apart = own
	}
	return r.apps.deploy(s, apart)
}

func (r *rayServe) Request(path string, body *jsonfield.Object) *api.Error {
	r.named(path, body)
	return nil
}
