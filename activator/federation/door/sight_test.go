package door_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api"
)

// of restricts a cluster's declaration to those tenants' requests.
func of(d door.Declaration, tenants ...string) door.Declaration {
	d.Tenants = tenants
	return d
}

// in puts a cluster's declaration into a region.
func in(d door.Declaration, region string) door.Declaration {
	d.Labels = map[string]string{door.LabelRegion: region}
	return d
}

// TestTenants: a cluster only gets requests of its declared tenants, even if it alone is awake and others wait; a
// client whose requests no cluster may see is told so.
func TestTenants(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, of(declared("west", "west", "default/*"), "acme", "both"), of(declared("east", "east", "default/*"), "beta", "both"))
	has := siteConfig{own: []api.FunctionName{"default/chat"}}
	if err := f.Place(placed(door.LabelCluster)); err != nil { // otherwise requests are refused until a cluster comes
		t.Fatal(err)
	}
	if err := f.Place(placed(door.LabelCluster)); err != nil { // it is known from now on
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 5 { // they are held until their clusters come
		for tenant, want := range map[string]string{"acme": `{"from":"west"}`, "beta": `{"from":"east"}`} {
			all.Go(func() {
				if status, body := f.askAs(t, tenant, "chat"); status != 200 || body != want {
					t.Errorf("%s: %d %s, want %s", tenant, status, body, want)
				}
			})
		}
	}
	newSite(t, "west", pool, has, f.at)
	newSite(t, "east", pool, has, f.at)
	all.Wait()
	f.joined(t, "default/chat", "west", "east")
	for _, tenant := range []string{"", "other", "tenant ", "ACME", "acme,beta"} {
		status, body := f.askAs(t, tenant, "chat")
		if status != 403 || !strings.Contains(body, `"code":"not_allowed"`) || !strings.Contains(body, "west: it may not see requests of") {
			t.Errorf("%q: %d %s, want 403 not_allowed", tenant, status, body)
		}
	}
	if status, body := f.askAs(t, "both", "chat"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

// TestCreatedForItsTenant: for each tenant, a function is created where the tenant's requests may be seen.
func TestCreatedForItsTenant(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, of(declared("west", "west", "default/*"), "acme"), of(declared("east", "east", "default/*"), "beta"))
	newSite(t, "west", pool, siteConfig{accept: everything}, f.at)
	newSite(t, "east", pool, siteConfig{accept: everything}, f.at)
	if err := f.Place(placed(door.LabelCluster)); err != nil {
		t.Fatal(err)
	}
	f.joined(t, "default/chat", "west", "east")
	for tenant, want := range map[string]string{"beta": `{"from":"east"}`, "acme": `{"from":"west"}`} {
		if status, body := f.askAs(t, tenant, "chat"); status != 200 || body != want {
			t.Errorf("%s: %d %s, want %s", tenant, status, body, want)
		}
	}
	if status, body := f.askAs(t, "gamma", "chat"); status != 403 {
		t.Errorf("%d %s, want 403", status, body)
	}
}

// TestRegions: requests of a function do not leave its regions.
func TestRegions(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "west", "default/*"), in(declared("east", "east", "default/*"), "eu-west-1"), in(declared("south", "south", "default/*"), "us-east-1"))
	says := siteConfig{own: []api.FunctionName{"default/chat"}}
	newSite(t, "west", pool, says, f.at)
	newSite(t, "south", pool, says, f.at)
	spec := placed(door.LabelCluster)
	spec.Regions = []string{"eu-central-1", "eu-west-1"}
	if err := f.Place(spec); err != nil {
		t.Fatal(err)
	}
	f.joined(t, "default/chat", "west", "south")
	e := newSite(t, "east", pool, siteConfig{accept: everything}, f.at)
	f.joined(t, "default/chat", "east")
	if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"east"}` {
		t.Errorf("%d %s, want it from the east", status, body)
	}
	if err := f.Declare([]door.Declaration{declared("west", "west", "default/*"), in(declared("south", "south", "default/*"), "us-east-1")}); err != nil {
		t.Fatal(err)
	}
	e.stop()
	status, body := f.ask(t, "chat")
	for _, want := range []string{`"code":"not_allowed"`, "west: its region is not declared", "south: its region is us-east-1, and requests may not leave eu-central-1, eu-west-1"} {
		if status != 403 || !strings.Contains(body, want) {
			t.Errorf("%d %s, want 403 and %q", status, body, want)
		}
	}
}
