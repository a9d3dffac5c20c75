package store

import (
	"errors"
	"maps"
	"strings"
	"time"
)

type expiry struct {
	version string
	at      time.Time
}

type survey struct {
	used    map[string]use   // by owner
	records map[string]Entry // by key
	data    []Entry
	hints   []Entry
	members []Entry
}

func (s *Store) survey() (*survey, error) {
	all, err := s.objects.List("")
	if err != nil {
		return nil, err
	}
	v := &survey{used: map[string]use{}, records: map[string]Entry{}}
	for _, e := range all {
		parts := strings.Split(e.Key, "/")
		var u use
		switch kind, n := parts[0], len(parts); {
		case kind == "data" && n == 4:
			v.data = append(v.data, e)
			u.bytes = e.Size
		case kind == "open" && n == 4:
			v.hints = append(v.hints, e)
		case kind == "members" && n == 2:
			v.members = append(v.members, e)
		case (kind == kindFile || kind == kindJob) && n == 3:
			v.records[e.Key] = e
			u = recordOf(parts[2], 0)
		}
		if u.bytes > 0 {
			v.used[parts[1]] = v.used[parts[1]].plus(u)
		}
	}
	return v, nil
}

// Sweep deletes what has expired, unless a batch reads it, and returns the number. It does so every [Config.Survey].
func (s *Store) Sweep(now time.Time) (n int, err error) {
	s.mu.Lock()
	wait := !s.surveyed.IsZero() && time.Since(s.surveyed) < s.cfg.Survey
	s.mu.Unlock()
	if wait {
		return 0, nil
	}
	if err := s.prepare(); err != nil {
		return 0, err
	}
	v, err := s.survey()
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.surveyed = time.Now()
	maps.DeleteFunc(s.expiries, func(key string, _ expiry) bool {
		_, there := v.records[key]
		return !there
	})
	s.mu.Unlock()
	if s.objects.Shared() { // a folder's process has counted all changes
		s.room.set(v.used)
	}
	for key, e := range v.records {
		expire := s.expireJob
		if strings.HasPrefix(key, kindFile+"/") {
			expire = s.expireFile
		}
		deleted, e := expire(key, e, now)
		if e = unlessGone(e); deleted && e == nil {
			n++
		}
		err = errors.Join(err, e)
	}
	s.sweepOrphans(v, time.Hour)
	return n, err
}

// Only jobs are read whose last write is as old as the time that they are kept.
func (s *Store) expireJob(key string, e Entry, now time.Time) (bool, error) {
	if now.Sub(e.Modified) < s.cfg.Keep {
		return false, nil
	}
	j, _, err := read[Job](s, key)
	if err != nil || !j.Done() || now.Before(j.Expires) {
		return false, err
	}
	return true, s.dropJob(j)
}

func (s *Store) expireFile(key string, e Entry, now time.Time) (bool, error) {
	s.mu.Lock()
	known, read1 := s.expiries[key]
	s.mu.Unlock()
	if read1 && known.version == e.Version && now.Before(known.at) {
		return false, nil
	}
	f, _, err := read[File](s, key)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.expiries[key] = expiry{e.Version, f.Expires}
	s.mu.Unlock()
	if now.Before(f.Expires) {
		return false, nil
	}
	if used, err := s.isInput(f.Owner, f.ID); used || err != nil {
		return false, err
	}
	return true, s.dropFile(f.Owner, f)
}

// sweepOrphans deletes objects that no record names: hints of this age, and others of a day. The newest beat tells the
// service's time.
func (s *Store) sweepOrphans(v *survey, age time.Duration) {
	now := time.Time{}
	for _, m := range v.members {
		if m.Modified.After(now) {
			now = m.Modified
		}
	}
	old := func(e Entry, age time.Duration) bool { return age == 0 || now.Sub(e.Modified) > age }
	for _, m := range v.members {
		if old(m, 24*age) {
			s.forget(m.Key)
		}
	}
	recorded := func(key string) bool {
		parts := strings.Split(key, "/")
		_, file := v.records[kindFile+"/"+parts[1]+"/"+parts[2]]
		_, job := v.records[kindJob+"/"+parts[1]+"/"+parts[2]]
		return file || job
	}
	for _, h := range v.hints {
		if !recorded(h.Key) && old(h, age) {
			s.forget(h.Key)
		}
	}
	for _, d := range v.data {
		if !recorded(d.Key) && old(d, 24*age) {
			s.forget(d.Key)
			if age == 0 {
				s.room.add(strings.Split(d.Key, "/")[1], use{bytes: -d.Size})
			}
		}
	}
}
