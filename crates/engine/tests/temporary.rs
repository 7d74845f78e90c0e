//! The list of temporary files is one for the process, so this test has a process of its own.

use keirin::{Database, remove_temporary_files};

#[test]
fn temporary_files_are_removed_and_made_again() {
    let parent = tempfile::tempdir().unwrap();
    let open = || Database::builder().temp_directory(parent.path()).in_memory();
    let first = open().unwrap();
    let made = || std::fs::read_dir(parent.path()).unwrap().count();
    assert_eq!(made(), 1);
    let none = remove_temporary_files();
    assert_eq!(made(), 0);
    assert!(open().is_err());
    drop(none);
    let second = open().unwrap();
    assert_eq!(made(), 1);
    drop((first, second));
}
