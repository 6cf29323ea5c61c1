package catalog_test

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"hansard"
	"hansard/catalog"
	"hansard/filestore"
)

// child is a process of TestRegistrations: it registers sessions and lists them.
func child() int {
	dir, name := os.Getenv("HANSARD_CATALOG_CHILD"), os.Getenv("HANSARD_CATALOG_NAME")
	sessions, _ := strconv.Atoi(os.Getenv("HANSARD_CATALOG_EACH"))
	ctx := context.Background()
	s, err := filestore.Open(dir, &filestore.Options{Catalog: catalog.Open})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close()
	for i := range sessions {
		if _, err := s.Create(ctx, hansard.SessionID(fmt.Sprintf("%s-%d", name, i)), hansard.Meta{Title: name}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// What this process registered is there, whatever becomes of the catalog.
		n := 0
		for info, err := range s.List(ctx, hansard.Query{Prefix: name + "-"}) {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			if info.Title == name {
				n++
			}
		}
		if n != i+1 {
			fmt.Fprintf(os.Stderr, "%s: %d of %d sessions are listed\n", name, n, i+1)
			return 1
		}
	}
	return 0
}
