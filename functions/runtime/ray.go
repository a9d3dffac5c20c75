package runtime

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/disk"
)

// ray is one Ray. The life of an application in it:
//
//  1. The first one starts the Ray ("ray start"), unless somebody else has.
//  2. Once Ray's REST interface answers, the application is declared.
//  3. It is read now and then. If Ray can't import or start it, it has ended.
//  4. A stop removes it and waits until it is gone. A shared Ray ends with this process.
//
// A write replaces the list of all applications, so each reads, merges and writes under a lock of this user on this machine. What others
// declare in between is lost; what they drop is declared again.
type ray struct {
	serve     api.Endpoint
	dashboard api.Endpoint
	token     string // of the dashboard; empty: none
	dir       string
	clean     func()   // removes dir
	lock      string   // a file's name
	ports     []string // Serve, dashboard, clients; nil: somebody else starts it
	client    *client
	known     atomic.Bool  // Serve was seen
	running   atomic.Int64 // applications of this process
	output    *process.Log

	mu   sync.Mutex    // guards head
	head process.Child // nil: not started, or not here
}

const (
	rayOften, raySeldom = 250 * time.Millisecond, 5 * time.Second // between looks at an application that changes, and that runs
	rayPatience         = time.Minute                             // for a call (the first starts Serve), and for an application to leave
	rayPath             = "/api/serve/applications/"
	rayDeleting         = "DELETING"
	rayLines            = 50 // of the Ray's output, kept
)

func (c *ray) Key() string { return c.token }

func newRay(by http.RoundTripper) (c *ray, err error) {
	c = &ray{token: rand.Text(), lock: "lock", output: process.NewLog(rayLines, nil)}
	c.client = &client{http: &http.Client{Transport: WithKey(by, c)}}
	for range 3 {
		port, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		c.ports = append(c.ports, port)
	}
	if c.dir, c.clean, err = TempDir(os.TempDir(), "ray-"); err != nil {
		return nil, err
	}
	c.serve, c.dashboard = api.Endpoint("http://127.0.0.1:"+c.ports[0]), api.Endpoint("http://127.0.0.1:"+c.ports[1])
	return c, nil
}

var shared = struct {
	sync.Mutex
	rays map[string]*ray // by command
}{rays: map[string]*ray{}}

// sharedRay returns this process's Ray for a command.
func sharedRay(command string, by http.RoundTripper) (c *ray, err error) {
	shared.Lock()
	defer shared.Unlock()
	if c = shared.rays[command]; c == nil || c.ended() {
		if c, err = newRay(by); err == nil {
			shared.rays[command] = c
		}
	}
	return c, err
}

// rayAt blocks until the dashboard at an address answers, or for some seconds.
func rayAt(address, token string, by http.RoundTripper) (*ray, error) {
	e, err := api.ParseEndpoint(address)
	c := &ray{dashboard: e, token: token, dir: os.TempDir(), lock: fmt.Sprintf("rouse-ray-%d-%s.lock", os.Getuid(), url.PathEscape(string(e)))}
	c.client = &client{http: &http.Client{Transport: WithKey(by, c)}}
	var d rayDetails
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), raySeldom)
		defer cancel()
		d, err = c.read(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("RAY_ADDRESS must be the address of the dashboard of a Ray that runs, such as http://127.0.0.1:8265: %w", err)
	}
	_, address = e.Network()
	host, _, _ := net.SplitHostPort(address)
	c.serve = api.Endpoint("http://" + net.JoinHostPort(host, strconv.Itoa(cmp.Or(d.HTTP.Port, 8000)))) // Serve's default
	return c, nil
}

// options are for "ray start". Memory decides which applications run at once, not Ray's count of processors.
func (c *ray) options() []string {
	return []string{
		"start", "--head", "--block", "--port=0", "--num-cpus=1000", "--dashboard-host=127.0.0.1", "--dashboard-port=" + c.ports[1],
		"--ray-client-server-port=" + c.ports[2], "--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0", "--temp-dir=" + c.dir,
	}
}

// env asks for a token (since Ray 2.52), as callers of Ray run programs as this user.
func (c *ray) env() []string {
	return []string{"RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN=" + c.token, "RAY_prestart_worker_first_driver=0"}
}

func (c *ray) listen(settings map[string]any) {
	options, _ := settings["http_options"].(map[string]any)
	if options == nil {
		options = map[string]any{}
	}
	options["host"], options["port"], settings["http_options"] = "127.0.0.1", json.Number(c.ports[0]), options
}

func (c *ray) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head != nil && c.head.Status() != ""
}

// rayDetails is Ray 2.60's ServeInstanceDetails (serve/schema.py).
type rayDetails struct {
	Controller struct {
		Node string `json:"node_id"`
	} `json:"controller_info"`
	HTTP struct {
		Port int `json:"port"`
	} `json:"http_options"`
	Capacity     json.RawMessage `json:"target_capacity"`
	Applications map[string]struct {
		Status   string          `json:"status"`
		Message  string          `json:"message"`
		Declared json.RawMessage `json:"deployed_app_config"` // null: started by a program, and left alone by declarations
	} `json:"applications"`
}

// read fails if Serve was seen and Ray reports nothing: the controller did not answer in time.
func (c *ray) read(ctx context.Context) (d rayDetails, err error) {
	err = c.client.ask(ctx, http.MethodGet, c.dashboard, rayPath, nil, &d)
	if d.Controller.Node != "" {
		c.known.Store(true)
	} else if err == nil && c.known.Load() {
		err = errors.New("read Ray's applications: Serve does not answer")
	}
	return d, err
}

// write declares applications, or leaves them out, and keeps all others.
func (c *ray) write(apps rayApplications, out bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), rayPatience)
	defer cancel()
	f, err := os.OpenFile(filepath.Join(c.dir, c.lock), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		defer f.Close()
		err = disk.WaitLock(f, disk.Exclusive)
	}
	if err != nil {
		return fmt.Errorf("lock Ray's applications: %w", err)
	}
	d, err := c.read(ctx)
	if err != nil {
		return err
	}
	all := []any{}
	for name, app := range d.Applications {
		if apps.declared[name] == nil && app.Declared != nil && app.Status != rayDeleting {
			all = append(all, app.Declared)
		}
	}
	if !out {
		all = slices.AppendSeq(all, maps.Values(apps.declared))
	}
	body := maps.Clone(apps.settings)
	body["applications"], body["target_capacity"] = all, d.Capacity
	_, err = c.client.call(ctx, http.MethodPut, c.dashboard, rayPath, body)
	return err
}

type rayApplications struct {
	ray      *ray
	alone    bool           // the Ray ends with them
	declared map[string]any // by name; one, unless alone
	settings map[string]any // for a Ray without Serve
}

// rayApplication is a declaration as a process that runs until it is removed.
type rayApplication struct {
	rayApplications
	process.Child // "ray start"; nil: not here
	say           func([]byte)
	removed       context.Context // ends when they are to be removed
	remove        context.CancelFunc
	exited        chan struct{}
	status        string // written before exited is closed
}

// deploy does not wait for the applications. start starts the Ray, if need be.
func (apps rayApplications) deploy(s process.Spec, start func(process.Spec) (process.Child, error)) (_ process.Child, err error) {
	c, a := apps.ray, &rayApplication{rayApplications: apps, say: s.Lines, exited: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == nil && c.ports != nil {
		s.Lines = c.output.Write
		if c.head, err = start(s); err != nil {
			return nil, err
		}
	}
	a.Child = c.head
	a.removed, a.remove = context.WithCancel(context.Background())
	c.running.Add(1)
	go a.run()
	return a, nil
}

func (a *rayApplication) run() {
	defer close(a.exited)
	defer a.ray.running.Add(-1)
	defer func() {
		if a.ray.ended() {
			a.ray.clean()
		}
	}()
	var ended <-chan struct{}
	if a.Child != nil {
		ended = a.Child.Exited()
	}
	wanted, ran, stop, until := true, false, a.removed.Done(), time.Time{}
	drop := func(why string) { wanted, a.status, until = false, why, time.Now().Add(rayPatience) }
	for pause := rayOften; wanted || time.Now().Before(until); {
		ctx, cancel := context.WithTimeout(context.Background(), rayPatience)
		d, err := a.ray.read(ctx)
		cancel()
		missing, stays, runs := false, false, true
		for name := range a.declared {
			app, found := d.Applications[name]
			missing, stays, runs = missing || !found, found && app.Status != rayDeleting, runs && app.Status == "RUNNING"
			if app.Status == "DEPLOY_FAILED" && wanted {
				a.print(app.Message)
				drop("Ray does not run " + name)
			}
		}
		switch {
		case !wanted && a.alone:
			a.Child.Stop(0)
			return
		case err != nil: // it starts, or is busy
		case !wanted && missing:
			return
		case missing && ran:
			drop("others have removed it from its Ray")
		case missing || !wanted && stays:
			err = a.ray.write(a.rayApplications, !wanted)
		case runs:
			ran, pause = true, raySeldom
		}
		if refused := (*statusError)(nil); errors.As(err, &refused) && refused.status/100 == 4 && refused.status != http.StatusNotFound && wanted {
			a.print(err.Error())
			drop("Ray refuses it")
		}
		if !wanted {
			stop, pause = nil, rayOften
		}
		select {
		case <-stop:
			drop("removed from its Ray")
		case <-ended:
			a.print(a.ray.output.Message(rayLines))
			a.status = cmp.Or(a.status, "its Ray has ended: "+a.Child.Status())
			return
		case <-time.After(pause):
		}
	}
}

func (a *rayApplication) print(text string) {
	for line := range strings.Lines(text) {
		a.say([]byte(strings.TrimRight(line, "\n")))
	}
}

func (a *rayApplication) PID() int {
	if a.Child == nil {
		return 0
	}
	return a.Child.PID()
}

func (a *rayApplication) Exited() <-chan struct{} { return a.exited }

func (a *rayApplication) Status() string {
	select {
	case <-a.exited:
		return a.status
	default:
		return ""
	}
}

func (a *rayApplication) Stop(grace time.Duration) {
	if a.alone {
		a.Child.Stop(grace)
	}
	a.remove()
	<-a.exited
}

func (a *rayApplication) Kill() { a.remove() }

func (a *rayApplication) CPU() (time.Duration, error) {
	if timed, is := a.Child.(interface{ CPU() (time.Duration, error) }); is {
		return timed.CPU()
	}
	return 0, errors.ErrUnsupported
}

// Memory is an equal part of the Ray's.
func (a *rayApplication) Memory() (all api.Bytes, shared api.SharedMemory, err error) {
	if a.Child == nil {
		return 0, shared, fmt.Errorf("measure the memory of an application in another's Ray: %w", errors.ErrUnsupported)
	}
	all, shared, err = a.Child.Memory()
	return all / api.Bytes(max(1, a.ray.running.Load())), shared, err
}
