package bucket

import (
	"errors"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/internal/s3"
)

// expiry is when a file expires, by its record at the time of reading.
type expiry struct {
	etag string
	at   time.Time
}

// survey is the content of the whole store.
type survey struct {
	used    store.Used
	records map[string]s3.Entry // by key
	data    []s3.Entry
	hints   []s3.Entry
	members []s3.Entry
}

func (s *Store) survey() (*survey, error) {
	all, err := s.list("")
	if err != nil {
		return nil, err
	}
	v := &survey{used: store.Used{Bytes: map[string]int64{}, Responses: map[string]int{}}, records: map[string]s3.Entry{}}
	for _, e := range all {
		kind, rest, _ := strings.Cut(e.Key, "/")
		owner, _, _ := strings.Cut(rest, "/")
		switch kind {
		case "data":
			v.data = append(v.data, e)
			v.used.Bytes[owner] += e.Size
		case "open":
			v.hints = append(v.hints, e)
		case "members":
			v.members = append(v.members, e)
		case kindResponse:
			v.used.Responses[owner]++
			v.records[e.Key] = e
		case kindFile, kindBatch, kindLater:
			v.records[e.Key] = e
		}
	}
	return v, nil
}

// recount counts the owners' use.
func (s *Store) recount() error {
	v, err := s.survey()
	if err == nil {
		s.room.Set(v.used)
	}
	return err
}

// Sweep implements [store.Store]. It does nothing until [Config.Survey] has passed since the last time.
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
	s.mu.Unlock()
	s.room.Set(v.used)
	s.forgetExpiries(v)
	for key, e := range v.records {
		deleted, e := s.expire(key, e, now)
		if deleted {
			n++
		}
		err = errors.Join(err, e)
	}
	s.sweepOrphans(v)
	return n, err
}

// forgetExpiries drops the cached expiries of deleted files.
func (s *Store) forgetExpiries(v *survey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.expiries {
		if _, there := v.records[key]; !there {
			delete(s.expiries, key)
		}
	}
}

// expire deletes a record's object if it has expired. It only reads records that may have: files, whose clients
// choose the time, once, and others when their last write is as old as the default time.
func (s *Store) expire(key string, e s3.Entry, now time.Time) (deleted bool, err error) {
	kind, _, _ := strings.Cut(key, "/")
	if kind != kindFile && now.Sub(e.Modified) < s.cfg.Keep {
		return false, nil
	}
	switch kind {
	case kindFile:
		deleted, err = s.expireFile(key, e, now)
	case kindBatch:
		var b *batchRecord
		if b, _, err = read[batchRecord](s, key); err == nil && b.Ended() && now.Sub(b.Ended_) >= s.cfg.Keep {
			deleted, err = true, s.remove(key)
		}
	case kindLater:
		var l *laterRecord
		if l, _, err = read[laterRecord](s, key); err == nil && l.Done() && !now.Before(l.Expires) {
			deleted, err = true, s.dropLater(l.Owner, &l.Later)
		}
	case kindResponse:
		var r *responseRecord
		if r, _, err = read[responseRecord](s, key); err != nil || now.Before(r.Expires) {
			break
		}
		if r.Deleted {
			err = s.remove(key)
			break
		}
		r.Background = false // no late writer can create it again
		deleted, err = true, s.dropResponse(r.Owner, r)
	}
	return deleted && err == nil, unlessGone(err)
}

func (s *Store) expireFile(key string, e s3.Entry, now time.Time) (bool, error) {
	s.mu.Lock()
	known, read1 := s.expiries[key]
	s.mu.Unlock()
	if read1 && known.etag == e.ETag && now.Before(known.at) {
		return false, nil
	}
	f, _, err := read[fileRecord](s, key)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.expiries[key] = expiry{e.ETag, f.Expires}
	s.mu.Unlock()
	if now.Before(f.Expires) {
		return false, nil
	}
	if used, err := s.reads(f.Owner, f.ID); used || err != nil {
		return false, err
	}
	return true, s.dropFile(f.Owner, f)
}

// The ages at which unreferenced objects are deleted.
const (
	orphanData   = 24 * time.Hour
	orphanHint   = time.Hour
	orphanMember = 24 * time.Hour
)

// sweepOrphans deletes unreferenced objects: written before a record that never came, or left after its deletion.
// Ages are measured by the service's clock, as far as it is known from the newest object.
func (s *Store) sweepOrphans(v *survey) {
	now := time.Time{}
	for _, m := range v.members { // this member has written its own within the last polls
		if m.Modified.After(now) {
			now = m.Modified
		}
	}
	for _, m := range v.members {
		if now.Sub(m.Modified) > orphanMember {
			s.forget(m.Key)
		}
	}
	for _, h := range v.hints {
		p, ok := parseHint(h.Key)
		kind := kindBatch
		if p.kind == openLater {
			kind = kindLater
		}
		if _, there := v.records[kind+"/"+p.owner+"/"+p.id]; ok && !there && now.Sub(h.Modified) > orphanHint {
			s.forget(h.Key)
		}
	}
	for _, d := range v.data {
		parts := strings.Split(d.Key, "/")
		if len(parts) != 4 || now.Sub(d.Modified) <= orphanData {
			continue
		}
		there := false
		for _, kind := range []string{kindFile, kindBatch, kindLater, kindResponse} {
			_, is := v.records[kind+"/"+parts[1]+"/"+parts[2]]
			there = there || is
		}
		if !there {
			s.forget(d.Key)
		}
	}
}
