# weft_embed(OUT NAME FILES...): a C++ source with std::string_view weft::embedded::NAME(std::string_view file),
# which returns the text of each file by its name without folder and ending. OUT gets the path of the source.
function(weft_embed out name)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  string(REPLACE ";" "," files "${ARGN}")
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DOUT=${source} -DNAME=${name} -DFILES=${files} -P ${PROJECT_SOURCE_DIR}/cmake/embed_script.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/embed_script.cmake
    VERBATIM)
  set(${out} ${source} PARENT_SCOPE)
endfunction()
