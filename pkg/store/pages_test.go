// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"navix.sh/atoll/e2e/must"
)

// A file that has grown, shrunk and grown again, with values over many pages, is sound whenever it is opened.
func TestASoundFileIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claims.db")
	r := rand.New(rand.NewSource(1))
	for round := range 6 {
		s, err := OpenBolt(path, "claims")
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for range 20 {
			var txn Txn
			for _, n := range r.Perm(20_000)[:500] {
				key := fmt.Sprintf("claim/%05d", n)
				switch {
				case round%2 == 1:
					txn.Deletes = append(txn.Deletes, key)
				case n%1000 == 0:
					txn.Puts = append(txn.Puts, Put{Key: key, Value: bytes.Repeat([]byte{0xff}, 70_000)})
				default:
					txn.Puts = append(txn.Puts, Put{Key: key, Value: make([]byte, n%900)})
				}
			}
			_, err = s.Commit(t.Context(), txn)
			must.Succeed(t, err)
		}
		must.Succeed(t, s.Close())
	}
}

// The pages of TestTree are as small as they may be.
const smallPage = 128

// element is one of a page: of a branch, or of a leaf.
type testElement struct {
	bucket     bool
	key, value []byte
	child      uint64
	longer     uint32 // than its key is
}

func testPage(id uint64, flags uint16, more uint32, elements ...testElement) []byte {
	page := make([]byte, (more+1)*smallPage)
	native.PutUint64(page, id)
	native.PutUint16(page[8:], flags)
	native.PutUint16(page[10:], uint16(len(elements)))
	native.PutUint32(page[12:], more)
	data := uint32(pageHeader + pageElement*len(elements))
	for i, e := range elements {
		at := uint32(pageHeader + pageElement*i)
		if flags == branchPage {
			native.PutUint32(page[at:], data-at)
			native.PutUint32(page[at+4:], uint32(len(e.key))+e.longer)
			native.PutUint64(page[at+8:], e.child)
		} else {
			if e.bucket {
				native.PutUint32(page[at:], bucketEntry)
			}
			native.PutUint32(page[at+4:], data-at)
			native.PutUint32(page[at+8:], uint32(len(e.key)))
			native.PutUint32(page[at+12:], uint32(len(e.value))+e.longer)
		}
		data += uint32(copy(page[data:], e.key))
		data += uint32(copy(page[data:], e.value))
	}
	return page
}

// bucketAt is the value of a bucket with a root of its own, or with a page in it.
func bucketAt(root uint64, inline ...byte) []byte {
	return append(append(native.AppendUint64(nil, root), make([]byte, 8)...), inline...)
}

func TestTree(t *testing.T) {
	key := []byte("k")
	entry := func(value ...byte) testElement { return testElement{key: key, value: value} }
	bucket := func(value []byte) testElement { return testElement{bucket: true, key: key, value: value} }
	to := func(child uint64) testElement { return testElement{key: key, child: child} }
	leaf := func(id uint64, elements ...testElement) []byte { return testPage(id, leafPage, 0, elements...) }
	branch := func(id uint64, elements ...testElement) []byte { return testPage(id, branchPage, 0, elements...) }
	top := func(value []byte) []byte { return leaf(2, bucket(value)) }
	changed := func(page []byte, at int, to uint16) []byte { native.PutUint16(page[at:], to); return page }
	fits := smallPage - pageHeader - pageElement - len(key) // what a value may have that is alone in its page
	for name, tc := range map[string]struct {
		pages [][]byte // from page 2 on
		want  string   // "": it is sound
	}{
		"nothing":                  {[][]byte{leaf(2)}, ""},
		"a bucket":                 {[][]byte{top(bucketAt(3)), leaf(3, entry(1), entry(2, 3))}, ""},
		"branches":                 {[][]byte{top(bucketAt(3)), branch(3, to(4), to(5)), leaf(4, entry()), leaf(5)}, ""},
		"a page over two":          {[][]byte{top(bucketAt(3)), testPage(3, leafPage, 1, entry(make([]byte, 150)...))}, ""},
		"as many as there may be":  {[][]byte{top(bucketAt(3)), changed(leaf(3, testElement{}), 10, 7)}, ""},
		"a full page":              {[][]byte{top(bucketAt(3)), leaf(3, entry(make([]byte, fits)...))}, ""},
		"a full branch":            {[][]byte{top(bucketAt(3)), branch(3, testElement{key: make([]byte, fits+1), child: 4}), leaf(4)}, ""},
		"a small bucket":           {[][]byte{top(bucketAt(0, leaf(0, entry(1))[:48]...))}, ""},
		"an empty small bucket":    {[][]byte{top(bucketAt(0, leaf(0)[:pageHeader]...))}, ""},
		"a page that is not there": {[][]byte{top(bucketAt(9))}, "there is no page 9, they end at 3"},
		"the page behind the last": {[][]byte{top(bucketAt(3))}, "there is no page 3, they end at 3"},
		"a page of the head":       {[][]byte{top(bucketAt(1))}, "there is no page 1"},
		"a page of another number": {[][]byte{top(bucketAt(3)), leaf(4)}, "page 3 of 4 says that it is 4 and goes on for 0 more"},
		"a page over the end": {[][]byte{top(bucketAt(3)), changed(leaf(3), 12, 1)},
			"page 3 of 4 says that it is 3 and goes on for 1 more"},
		"a page that leads back": {[][]byte{top(bucketAt(3)), branch(3, to(3))}, "two ways lead to page 3"},
		"two that lead to one":   {[][]byte{top(bucketAt(3)), branch(3, to(4), to(4)), leaf(4)}, "two ways lead to page 4"},
		"one within another": {[][]byte{top(bucketAt(3)), branch(3, to(4), to(5)), testPage(4, leafPage, 1)[:smallPage], leaf(5)},
			"two ways lead to page 5"},
		"a page of no kind":         {[][]byte{top(bucketAt(3)), testPage(3, 0x10, 0)}, "page 3 has flags 0x10"},
		"a branch without branches": {[][]byte{top(bucketAt(3)), branch(3)}, "page 3: a branch without branches"},
		"a branch of too many":      {[][]byte{top(bucketAt(3)), changed(branch(3, to(4)), 10, 8), leaf(4)}, "page 3: an element lies outside"},
		"a key beyond a branch": {[][]byte{top(bucketAt(3)), branch(3, testElement{key: make([]byte, fits+1), child: 4, longer: 1}), leaf(4)},
			"page 3: an element lies outside"},
		"a leaf of too many": {[][]byte{top(bucketAt(3)), changed(leaf(3, testElement{}), 10, 8)}, "page 3: an element lies outside"},
		"a value beyond a leaf": {[][]byte{top(bucketAt(3)), leaf(3, testElement{key: key, value: make([]byte, fits), longer: 1})},
			"page 3: an element lies outside"},
		"a bucket in a bucket":    {[][]byte{top(bucketAt(3)), leaf(3, bucket(bucketAt(3)))}, "a bucket where none belongs"},
		"an entry at the top":     {[][]byte{leaf(2, entry(1))}, "a bucket where none belongs"},
		"half a bucket":           {[][]byte{top(bucketAt(3)[:15])}, "an element lies outside"},
		"half a small bucket":     {[][]byte{top(bucketAt(0, leaf(0)[:pageHeader-1]...))}, "a small bucket is no leaf"},
		"a small bucket, no leaf": {[][]byte{top(bucketAt(0, branch(0, to(2))[:48]...))}, "a small bucket is no leaf"},
		"a bucket in a small one": {[][]byte{top(bucketAt(0, leaf(0, bucket(nil))[:48]...))}, "a bucket where none belongs"},
	} {
		file := make([]byte, 2*smallPage)
		for _, page := range tc.pages {
			file = append(file, page...)
		}
		pages := uint64(len(file) / smallPage)
		w := &walker{file: bytes.NewReader(file), size: smallPage, pages: pages, seen: make([]bool, pages)}
		err := w.tree(2, true)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if err == nil && slices.Contains(w.seen[2:], false) {
			t.Errorf("%s: not all pages were seen: %v", name, w.seen)
		}
	}
}

// Of the pages that no way leads to only the list of free ones is believed in what it says of its length.
func TestThePagesThatNoWayLeadsTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := OpenBolt(path, "test")
	must.Succeed(t, err)
	for range 3 { // what was overwritten leaves free pages
		_, err = s.Commit(t.Context(), Txn{Puts: []Put{{Key: "k", Value: make([]byte, 9000)}}})
		must.Succeed(t, err)
	}
	size, last := int64(s.db.Info().PageSize), int64(0)
	kinds := map[string]int64{}
	err = s.view(func(tx *bbolt.Tx) error {
		last = tx.Size() / size
		for id := int64(2); id < last; id++ {
			if info, err := tx.Page(int(id)); err == nil && info != nil {
				kinds[info.Type] = id
			}
		}
		return nil
	})
	must.Succeed(t, errors.Join(err, s.Close()))
	whole, err := os.ReadFile(path)
	must.Succeed(t, err)
	for name, tc := range map[string]struct {
		id   int64
		more int64
		want string
	}{
		"the list up to the end":    {kinds["freelist"], last - kinds["freelist"] - 1, ""},
		"the list over the end":     {kinds["freelist"], last - kinds["freelist"], "goes on for"},
		"a free page, over the end": {kinds["free"], last, ""},
	} {
		damaged := bytes.Clone(whole)
		native.PutUint64(damaged[tc.id*size:], uint64(tc.id))
		native.PutUint32(damaged[tc.id*size+12:], uint32(tc.more))
		must.Succeed(t, os.WriteFile(path, damaged, 0o600))
		db, err := openFile(path)
		must.Succeed(t, err)
		err = db.View(func(tx *bbolt.Tx) error { return checkTree(tx, path, size) })
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		must.Succeed(t, db.Close())
	}
}
