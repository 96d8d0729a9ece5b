# SPDX-License-Identifier: GPL-2.0
# The allocator: crates of their own, compiled as those of rust/ are.

obj-y := bitflags.o freehold.o freehold_ffi.o

crate := --edition=2024
$(obj)/bitflags.o: private crate := --edition=2021
$(obj)/freehold.o: private crate += --extern bitflags
$(obj)/freehold_ffi.o: private crate += --extern freehold

quiet_cmd_rustc_crate = RUSTC $(quiet_modtag) $@
      cmd_rustc_crate = \
	OBJTREE=$(abspath $(objtree)) CARGO_PKG_VERSION=VERSION \
	$(RUSTC) $(filter-out --edition=%,$(rust_flags)) $(crate) \
		-Copt-level=3 --cap-lints=allow \
		--emit=dep-info=$(depfile) --emit=obj=$@ \
		--emit=metadata=$(dir $@)$(patsubst %.o,lib%.rmeta,$(notdir $@)) \
		--crate-type rlib --crate-name $(patsubst %.o,%,$(notdir $@)) $< \
		-L $(objtree)/rust -L $(obj) --sysroot=/dev/null -Zunstable-options \
	$(cmd_objtool)

$(obj)/freehold.o: $(obj)/bitflags.o
$(obj)/freehold_ffi.o: $(obj)/freehold.o
$(obj)/%.o: $(src)/%/lib.rs FORCE
	+$(call if_changed_dep,rustc_crate)
