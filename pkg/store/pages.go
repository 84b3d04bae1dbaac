// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
)

// The layout of a bbolt page: its number (8 bytes), flags and count (2 bytes each), the number of overflow pages (4 bytes), then the
// elements. An element contains the offsets of its key and value, relative to its own position.
const (
	pageHeader  = 16
	pageElement = 16
	branchPage  = 0x01
	leafPage    = 0x02
	bucketEntry = 0x01
)

var native = binary.NativeEndian

// checkTree walks a file's pages from the root before bbolt does, because bbolt trusts their content. bbolt would loop over a page that
// links back to itself, iterate over a page that claims billions of elements, and fault, unrecoverably, at an element outside of the file.
func checkTree(tx *bbolt.Tx, path string, pageSize int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w := &walker{file: file, size: uint64(pageSize), pages: uint64(tx.Size() / pageSize)}
	w.seen = make([]bool, w.pages)
	if err := w.tree(uint64(tx.Cursor().Bucket().RootPage()), true); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := w.others(tx); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

type walker struct {
	file        io.ReaderAt
	size, pages uint64
	seen        []bool
}

// tree checks a bucket's pages. Buckets exist only at the top.
func (w *walker) tree(root uint64, top bool) error {
	for open := []uint64{root}; len(open) > 0; {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		page, err := w.page(id)
		if err != nil {
			return err
		}
		switch flags := native.Uint16(page[8:]); flags {
		case branchPage:
			children, err := branch(page)
			if err != nil {
				return fmt.Errorf("page %d: %w", id, err)
			}
			open = append(open, children...)
		case leafPage:
			if err := w.leaf(page, top); err != nil {
				return fmt.Errorf("page %d: %w", id, err)
			}
		default:
			return fmt.Errorf("page %d has flags %#x", id, flags)
		}
	}
	return nil
}

// page reads a page that was not reached before.
func (w *walker) page(id uint64) ([]byte, error) {
	if id < 2 || id >= w.pages {
		return nil, fmt.Errorf("there is no page %d, they end at %d", id, w.pages)
	}
	header := make([]byte, pageHeader)
	if _, err := w.file.ReadAt(header, int64(id*w.size)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	more := uint64(native.Uint32(header[12:]))
	if itself := native.Uint64(header); itself != id || id+more >= w.pages {
		return nil, fmt.Errorf("page %d of %d says that it is %d and goes on for %d more", id, w.pages, itself, more)
	}
	for part := id; part <= id+more; part++ {
		if w.seen[part] {
			return nil, fmt.Errorf("two ways lead to page %d", part)
		}
		w.seen[part] = true
	}
	page := make([]byte, (more+1)*w.size)
	if _, err := w.file.ReadAt(page, int64(id*w.size)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return page, nil
}

var errOutside = errors.New("an element lies outside")

// element returns the i-th element and the start of its data. position is where elements of this kind store that start.
func element(page []byte, i, position uint64) ([]byte, uint64, error) {
	at := pageHeader + i*pageElement
	if at+pageElement > uint64(len(page)) {
		return nil, 0, errOutside
	}
	e := page[at : at+pageElement]
	offset := at + uint64(native.Uint32(e[position:]))
	return e, offset, nil
}

func branch(page []byte) (children []uint64, err error) {
	count := uint64(native.Uint16(page[10:]))
	if count == 0 {
		return nil, errors.New("a branch without branches")
	}
	for i := range count {
		e, data, err := element(page, i, 0)
		if err != nil || data+uint64(native.Uint32(e[4:])) > uint64(len(page)) {
			return nil, errOutside
		}
		children = append(children, native.Uint64(e[8:]))
	}
	return children, nil
}

func (w *walker) leaf(page []byte, top bool) error {
	for i := range uint64(native.Uint16(page[10:])) {
		e, data, err := element(page, i, 4)
		if err != nil {
			return err
		}
		value := data + uint64(native.Uint32(e[8:]))
		end := value + uint64(native.Uint32(e[12:]))
		if end > uint64(len(page)) {
			return errOutside
		}
		if isBucket := native.Uint32(e)&bucketEntry != 0; isBucket != top {
			return errors.New("a bucket where none belongs, or none where one does")
		}
		if top {
			if err := w.bucket(page[value:end]); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket checks a bucket's value: the position of its root, and if that is page 0 its inline page.
func (w *walker) bucket(value []byte) error {
	if len(value) < 16 {
		return errOutside
	}
	if root := native.Uint64(value); root != 0 {
		return w.tree(root, false)
	}
	inline := value[16:]
	if len(inline) < pageHeader || native.Uint16(inline[8:]) != leafPage {
		return errors.New("a small bucket is no leaf")
	}
	return w.leaf(inline, false)
}

// others checks the unreachable pages too, because bbolt iterates over the elements of the free list pages as well.
func (w *walker) others(tx *bbolt.Tx) error {
	header := make([]byte, pageHeader)
	for id := range w.pages {
		if w.seen[id] {
			continue
		}
		if _, err := w.file.ReadAt(header, int64(id*w.size)); err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
		more := uint64(native.Uint32(header[12:]))
		if native.Uint64(header) != id || id+more < w.pages {
			continue
		}
		if info, err := tx.Page(int(id)); err != nil || info.Type != "free" {
			return errors.Join(fmt.Errorf("page %d of %d goes on for %d more", id, w.pages, more), err)
		}
	}
	return nil
}
