package simulate

import "slices"

// keepalive is Ollama's policy on one machine (server/sched.go): a model is loaded when a request needs it, on the GPU
// with the most free memory, and stays for OLLAMA_KEEP_ALIVE after its last request. If there is no room, the least
// recently used model takes no new requests, and goes once it has finished. Models to load wait in one queue, and the
// first blocks the others. Nothing sleeps; a model has one instance; there are no pods.
type keepalive struct {
	w     *world
	p     Policy
	queue []*function // models to load
}

func newKeepalive(w *world, p Policy) controller {
	return &keepalive{w: w, p: p}
}

func (k *keepalive) arrived(f *function) { k.want(f) }

func (k *keepalive) changed(f *function) {
	k.want(f)
	for _, u := range f.units {
		if u.state == awake && u.running == 0 {
			k.w.whenIdle(u, k.p.Keep, func() { k.unload(u) })
		}
	}
	k.load()
}

// Each machine has its own Ollama, and others continue.
func (k *keepalive) left(_ int, lost []*unit) {
	for _, u := range lost {
		k.want(u.f)
	}
	k.load()
}

func (k *keepalive) joined(int) { k.load() }

func (k *keepalive) want(f *function) {
	if len(f.queue) == 0 || slices.Contains(k.queue, f) ||
		slices.ContainsFunc(f.units, func(u *unit) bool { return u.state != falling }) {
		return
	}
	k.queue = append(k.queue, f)
	k.load()
}

func (k *keepalive) unload(u *unit) {
	k.w.stop(u, func() {
		k.want(u.f)
		k.load()
	})
}

func (k *keepalive) load() {
	for len(k.queue) > 0 {
		f := k.queue[0]
		if len(f.queue) == 0 { // they were refused
			k.queue = k.queue[1:]
			continue
		}
		if devices := k.w.room(f.m); devices != nil {
			k.queue = k.queue[1:]
			k.w.start(f, devices, 0, nil)
			continue
		}
		if u, unloading := k.oldest(); u != nil && !unloading {
			k.w.swaps++
			k.unload(u)
		}
		return
	}
}

// oldest returns the least recently used instance, an idle one if possible; nil if all are loading.
func (k *keepalive) oldest() (oldest *unit, unloading bool) {
	for _, f := range k.w.functions {
		for _, u := range f.units {
			unloading = unloading || u.state == falling
			if u.state != awake {
				continue
			}
			busy := u.running > 0
			if oldest == nil || oldest.running > 0 && !busy || busy == (oldest.running > 0) && u.lastUse < oldest.lastUse {
				oldest = u
			}
		}
	}
	return oldest, unloading
}
