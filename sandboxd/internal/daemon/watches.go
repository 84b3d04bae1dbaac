// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"github.com/google/uuid"

	filesystemv1 "navix.sh/atoll/api/envd/filesystem"
)

const (
	maxWatchers = 64
	maxFolders  = 4096 // of one watch
	maxEvents   = 4096 // of a watcher whose events are not fetched
)

// watch watches a folder, and all folders below it if it is recursive.
type watch struct {
	*fsnotify.Watcher
	root      string
	recursive bool
	entries   bool // events include the entry
}

func newWatch(root string, recursive, entries bool) (*watch, error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, failed("watching", root, err)
	}
	if !info.IsDir() {
		return nil, failed("watching", root, syscall.ENOTDIR)
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("watching %q: %w", root, err))
	}
	w := &watch{Watcher: notify, root: root, recursive: recursive, entries: entries}
	if err := w.add(root, nil); err != nil {
		_ = notify.Close()
		return nil, failed("watching", root, err)
	}
	return w, nil
}

// add watches a folder. A recursive watch adds all folders below it, and passes each path below it to found unless that is nil. A folder is
// watched before it is listed, so that no change is missed in between; a change may be reported twice.
func (w *watch) add(folder string, found func(path string) error) error {
	if !w.recursive {
		return w.Add(folder)
	}
	folders := len(w.WatchList())
	// The trailing slash makes a link to a folder stand for that folder.
	return filepath.WalkDir(folder+string(filepath.Separator), func(path string, entry fs.DirEntry, err error) error {
		path = filepath.Clean(path)
		switch {
		case err != nil && path == w.root:
			return err
		case err != nil:
			return nil //nolint:nilerr // gone meanwhile
		case entry.IsDir() && folders >= maxFolders:
			return fmt.Errorf("more than %d folders", maxFolders)
		case entry.IsDir():
			folders++
			if err := w.Add(path); err != nil && (path == w.root || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		}
		if found == nil {
			return nil
		}
		return found(path)
	})
}

// emit passes on an event, and waits until there is room for it. An error ends the watch's events.
type emit func(*filesystemv1.FilesystemEvent) error

// leave stops watching a folder that was moved, and all folders below it, because their later events would have the path from before the
// move. If the folder is still below the root, the event at its new path watches it again.
func (w *watch) leave(path string) {
	path = filepath.Clean(path)
	if path == w.root { // paths of events are relative to it
		return
	}
	for _, folder := range w.WatchList() {
		if folder == path || strings.HasPrefix(folder, path+string(filepath.Separator)) {
			_ = w.Remove(folder) // fails if it is gone
		}
	}
}

// events emits the events of one notification, which can have several operations.
func (w *watch) events(e fsnotify.Event, to emit) error {
	if w.recursive && e.Has(fsnotify.Rename) {
		w.leave(e.Name)
	}
	for _, kind := range []struct {
		op fsnotify.Op
		as filesystemv1.EventType
	}{
		{fsnotify.Create, filesystemv1.EventType_EVENT_TYPE_CREATE}, {fsnotify.Write, filesystemv1.EventType_EVENT_TYPE_WRITE},
		{fsnotify.Remove, filesystemv1.EventType_EVENT_TYPE_REMOVE}, {fsnotify.Rename, filesystemv1.EventType_EVENT_TYPE_RENAME},
		{fsnotify.Chmod, filesystemv1.EventType_EVENT_TYPE_CHMOD},
	} {
		if !e.Has(kind.op) {
			continue
		}
		report := w.event
		if w.recursive && kind.op == fsnotify.Create {
			report = w.created
		}
		if err := report(e.Name, kind.as, to); err != nil {
			return err
		}
	}
	return nil
}

// created emits the event of a new entry. It watches a new folder before it emits its event, because a client may write to it at once. It
// also emits an event for everything below the folder, which may have existed before the folder was watched, as after a move.
func (w *watch) created(path string, kind filesystemv1.EventType, to emit) error {
	var reported bool
	var stopped error
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		_ = w.add(path, func(path string) error { // beyond the bound, its events are missing
			reported = true
			stopped = w.event(path, kind, to)
			return stopped
		})
	}
	if reported {
		return stopped
	}
	return w.event(path, kind, to)
}

func (w *watch) event(path string, kind filesystemv1.EventType, to emit) error {
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		return nil //nolint:nilerr // it is not below the root
	}
	event := &filesystemv1.FilesystemEvent{Name: validUTF8(name), Type: kind}
	if w.entries {
		if entry, err := entryOf(path); err == nil {
			event.Entry = entry
		}
	}
	return to(event)
}

func (d *Daemon) watchDir(ctx context.Context, q *connect.Request[filesystemv1.WatchDirRequest],
	s *connect.ServerStream[filesystemv1.WatchDirResponse],
) error {
	_, root, err := d.place(q, q.Msg.GetPath())
	if err != nil {
		return err
	}
	w, err := newWatch(root, q.Msg.GetRecursive(), q.Msg.GetIncludeEntry())
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	if err := s.Send(&filesystemv1.WatchDirResponse{Event: &filesystemv1.WatchDirResponse_Start{
		Start: &filesystemv1.WatchDirResponse_StartEvent{},
	}}); err != nil {
		return err
	}
	return d.followWatch(ctx, w, q.Header(), s)
}

func (d *Daemon) followWatch(ctx context.Context, w *watch, header http.Header,
	s *connect.ServerStream[filesystemv1.WatchDirResponse]) error {
	ticker := time.NewTicker(keepalive(header))
	defer ticker.Stop()
	for {
		select {
		case e := <-w.Events:
			if err := w.events(e, func(event *filesystemv1.FilesystemEvent) error {
				return s.Send(&filesystemv1.WatchDirResponse{Event: &filesystemv1.WatchDirResponse_Filesystem{Filesystem: event}})
			}); err != nil {
				return err
			}
		case err := <-w.Errors:
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("watching %q: %w", w.root, err))
		case <-ticker.C:
			if err := s.Send(&filesystemv1.WatchDirResponse{Event: &filesystemv1.WatchDirResponse_Keepalive{
				Keepalive: &filesystemv1.WatchDirResponse_KeepAlive{},
			}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox ends"))
		}
	}
}

// watcher is a watch whose events clients fetch.
type watcher struct {
	*watch
	mu      sync.Mutex
	waiting []*filesystemv1.FilesystemEvent
	lost    error // why events after the waiting ones are missing
	due     error // why events after the fetched ones are missing; reported next
	done    chan struct{}
}

// keep stores an event until it is fetched, if there is room.
func (w *watcher) keep(event *filesystemv1.FilesystemEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= maxEvents {
		w.lost = fmt.Errorf("more than %d events were not fetched; the later ones are lost", maxEvents)
		return
	}
	w.waiting = append(w.waiting, event)
}

// fetch returns the stored events. A loss is reported after all events before it were fetched.
func (w *watcher) fetch() ([]*filesystemv1.FilesystemEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due == nil && len(w.waiting) == 0 {
		w.due, w.lost = w.lost, nil
	}
	if due := w.due; due != nil {
		w.due = nil
		return nil, connect.NewError(connect.CodeDataLoss, due)
	}
	events := w.waiting
	w.waiting, w.due, w.lost = nil, w.lost, nil
	return events, nil
}

func (w *watcher) collect() {
	defer close(w.done)
	for {
		select {
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			_ = w.events(e, func(event *filesystemv1.FilesystemEvent) error { w.keep(event); return nil })
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			w.mu.Lock()
			w.lost = err
			w.mu.Unlock()
		}
	}
}

func (w *watcher) close() {
	_ = w.Close()
	<-w.done
}

func (d *Daemon) createWatcher(_ context.Context, q *connect.Request[filesystemv1.CreateWatcherRequest]) (
	*connect.Response[filesystemv1.CreateWatcherResponse], error,
) {
	_, root, err := d.place(q, q.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	inner, err := newWatch(root, q.Msg.GetRecursive(), q.Msg.GetIncludeEntry())
	if err != nil {
		return nil, err
	}
	w := &watcher{watch: inner, done: make(chan struct{})}
	id := uuid.NewString()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.watchers) >= maxWatchers || d.ctx.Err() != nil {
		_ = inner.Close()
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d watchers already, which is the most", maxWatchers))
	}
	d.watchers[id] = w
	go w.collect()
	return connect.NewResponse(&filesystemv1.CreateWatcherResponse{WatcherId: id}), nil
}

func (d *Daemon) watcherEvents(_ context.Context, q *connect.Request[filesystemv1.GetWatcherEventsRequest]) (
	*connect.Response[filesystemv1.GetWatcherEventsResponse], error,
) {
	d.mu.Lock()
	w := d.watchers[q.Msg.GetWatcherId()]
	d.mu.Unlock()
	if w == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher %q not found", q.Msg.GetWatcherId()))
	}
	events, err := w.fetch()
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystemv1.GetWatcherEventsResponse{Events: events}), nil
}

func (d *Daemon) removeWatcher(_ context.Context, q *connect.Request[filesystemv1.RemoveWatcherRequest]) (
	*connect.Response[filesystemv1.RemoveWatcherResponse], error,
) {
	d.mu.Lock()
	w := d.watchers[q.Msg.GetWatcherId()]
	delete(d.watchers, q.Msg.GetWatcherId())
	d.mu.Unlock()
	if w == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher %q not found", q.Msg.GetWatcherId()))
	}
	w.close()
	return connect.NewResponse(&filesystemv1.RemoveWatcherResponse{}), nil
}
