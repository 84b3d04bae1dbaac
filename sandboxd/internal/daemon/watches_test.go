// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"navix.sh/atoll/api/envd"
	filesystemv1 "navix.sh/atoll/api/envd/filesystem"
	"navix.sh/atoll/e2e/must"
)

// What a folder has that is moved into a watched one is new there.
func TestAWatchTellsWhatANewFolderHas(t *testing.T) {
	s := opened(t)
	dir, tree := t.TempDir(), filepath.Join(t.TempDir(), "tree")
	must.Succeed(t, os.MkdirAll(filepath.Join(tree, "sub"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(tree, "sub", "file"), nil, 0o600))
	stream := openStream[filesystemv1.WatchDirResponse](t.Context(), s, envd.FilesystemWatchDir,
		&filesystemv1.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true})
	stream.Receive() // start
	id := mustCall[filesystemv1.CreateWatcherResponse](s, envd.FilesystemCreateWatcher,
		&filesystemv1.CreateWatcherRequest{Path: dir, Recursive: true}).GetWatcherId()
	must.Succeed(t, os.Rename(tree, filepath.Join(dir, "tree")))
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "end"), 0o755))

	created := map[string]bool{}
	for !created["end"] && stream.Receive() {
		if e := stream.Msg().GetFilesystem(); e.GetType() == filesystemv1.EventType_EVENT_TYPE_CREATE {
			created[e.GetName()] = true
			if e.GetEntry().GetName() != filepath.Base(e.GetName()) {
				t.Errorf("the event of %s has the entry %v", e.GetName(), e.GetEntry())
			}
		}
	}
	fetched := map[string]bool{}
	for !fetched["end"] { // ends with the test's time
		for _, e := range mustCall[filesystemv1.GetWatcherEventsResponse](s, envd.FilesystemGetWatcherEvents,
			&filesystemv1.GetWatcherEventsRequest{WatcherId: id}).GetEvents() {
			fetched[e.GetName()] = true
		}
	}
	for _, name := range []string{"tree", "tree/sub", "tree/sub/file"} {
		if !created[name] || !fetched[name] {
			t.Errorf("%s was told: %t, and fetched: %t", name, created[name], fetched[name])
		}
	}
}

// Events below a folder that was moved have its new path, and there are none once it is elsewhere.
func TestAWatchFollowsAFolderThatIsMoved(t *testing.T) {
	s := opened(t)
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	must.Succeed(t, os.MkdirAll(filepath.Join(dir, "before", "sub"), 0o755))
	stream := openStream[filesystemv1.WatchDirResponse](t.Context(), s, envd.FilesystemWatchDir,
		&filesystemv1.WatchDirRequest{Path: dir, Recursive: true})
	stream.Receive() // start
	until := func(name string, kind filesystemv1.EventType) (names []string) {
		t.Helper()
		for stream.Receive() {
			e := stream.Msg().GetFilesystem()
			names = append(names, e.GetName())
			if e.GetName() == name && e.GetType() == kind {
				return names
			}
		}
		t.Fatalf("no event %v of %q: %v", kind, name, stream.Err())
		return nil
	}
	after := filepath.Join(dir, "after")
	must.Succeed(t, os.Rename(filepath.Join(dir, "before"), after))
	until("after/sub", filesystemv1.EventType_EVENT_TYPE_CREATE)
	must.Succeed(t, os.Mkdir(filepath.Join(after, "sub", "new"), 0o755))
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "first"), 0o755))
	names := until("first", filesystemv1.EventType_EVENT_TYPE_CREATE)
	if !slices.Contains(names, "after/sub/new") ||
		slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "before/") }) {
		t.Errorf("after the move there are events of %q", names)
	}
	must.Succeed(t, os.Rename(after, elsewhere))
	until("after", filesystemv1.EventType_EVENT_TYPE_RENAME)
	must.Succeed(t, os.Mkdir(filepath.Join(elsewhere, "sub", "late"), 0o755))
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "second"), 0o755))
	if names := until("second", filesystemv1.EventType_EVENT_TYPE_CREATE); slices.Contains(names, "after/sub/late") {
		t.Errorf("a folder that is elsewhere has events: %q", names)
	}
}

func TestAWatcherKeepsWhatCameBeforeALoss(t *testing.T) {
	s := opened(t)
	id := mustCall[filesystemv1.CreateWatcherResponse](s, envd.FilesystemCreateWatcher,
		&filesystemv1.CreateWatcherRequest{Path: t.TempDir()}).GetWatcherId()
	s.daemon.mu.Lock()
	w := s.daemon.watchers[id]
	s.daemon.mu.Unlock()
	happen := func(events int) {
		for i := range events {
			w.keep(&filesystemv1.FilesystemEvent{Name: strconv.Itoa(i), Type: filesystemv1.EventType_EVENT_TYPE_CREATE})
		}
	}
	want := func(events int, code connect.Code) {
		t.Helper()
		got, err := call[filesystemv1.GetWatcherEventsResponse](s, envd.FilesystemGetWatcherEvents,
			&filesystemv1.GetWatcherEventsRequest{WatcherId: id})
		if n := len(got.GetEvents()); n != events || err != nil && connect.CodeOf(err) != code || err == nil && code != 0 {
			t.Fatalf("%d events, %v, want %d, code %v", n, err, events, code)
		}
	}
	happen(maxEvents + 1)
	want(maxEvents, 0)
	happen(maxEvents + 1)
	want(0, connect.CodeDataLoss)
	want(maxEvents, 0)
	want(0, connect.CodeDataLoss)
	happen(2)
	want(2, 0)
	want(0, 0)
}
